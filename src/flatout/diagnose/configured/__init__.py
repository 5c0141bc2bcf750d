"""What a run was given to work with: values of its command line and of the config files it names."""
