"""How fast the kernels are on this machine, beside what else one could use."""
