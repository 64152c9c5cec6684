"""All that runs where the GPUs are: the Ray executor, the probe task, checkouts on a node, the injected recorder.

Of `bisect_train` this package knows the vocabulary (`bisect_train.core`) only, and it is the only one that imports ray.
Importing the package itself imports neither; `bisect_train_workers.ray_executor` does.
"""
