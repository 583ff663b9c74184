"""What a developer runs; nothing of it is installed."""
