"""Operations of liger_kernel in plain torch."""
