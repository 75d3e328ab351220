from .modular_blocks_wan_t2v_blocks import WanT2vBlocksBlocks
from .modular_pipeline import WanT2vBlocksModularPipeline

__all__ = ["WanT2vBlocksBlocks", "WanT2vBlocksModularPipeline"]
