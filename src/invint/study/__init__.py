"""Many runs together: what is in their folders, statistics over seeds, tables."""
