_base_ = ["model.py", "data.py", "schedule.py"]
