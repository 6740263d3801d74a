"""Reports for people: plots of figures."""
