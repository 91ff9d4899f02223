"""How well the product reads and finds: measured on real files and question sets, repeatable by `make eval`."""
