"""The search: belief over an ordered list of changes, proposals, and the plan of a whole bisection. Pure."""
