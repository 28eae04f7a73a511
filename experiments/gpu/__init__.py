"""The parts of ``gpu_check``: what is measured on a GPU, each in a process of its own."""
