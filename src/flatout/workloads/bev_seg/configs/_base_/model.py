model = dict(drop_path_rate=0.1)
