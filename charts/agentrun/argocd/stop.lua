-- Ends the run once its steps in flight have finished. There is no way back.
obj.spec.shutdown = "Stop"
return obj
