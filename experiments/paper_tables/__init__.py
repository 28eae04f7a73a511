"""The paper's tables as plain data: published figures, the runs that would reproduce them, and what was reached."""
