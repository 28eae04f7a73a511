"""Other formats <-> our parameters."""
