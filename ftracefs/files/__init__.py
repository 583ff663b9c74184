"""The files of the tree, one module a family; `table` lists them all."""
