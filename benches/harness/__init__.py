"""What the cases stand on: the two servers, load, processes, figures."""
