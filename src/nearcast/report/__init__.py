"""What is shown to people: pictures of figures."""
