"""What a step costs on accelerators that are not here; the programs are check_mesh and scaling."""
