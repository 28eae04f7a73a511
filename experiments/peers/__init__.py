"""The same work done by other libraries, in processes of their own, and the line protocol they are driven by."""
