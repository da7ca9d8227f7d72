-- Parks the run: steps in flight finish, and its pod goes.
obj.spec.suspend = true
return obj
