"""Reading Python: an index of files, matching of functions, and an interpreter of constructors."""
