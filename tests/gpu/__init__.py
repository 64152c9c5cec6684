"""What only a GPU can show. `python -m tests.gpu.show` runs all of it as one script; the tests here run it part by part."""
