"""Object stores behind one protocol: a directory, S3, memory."""
