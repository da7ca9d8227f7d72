-- Lets a parked run go on from where it is.
obj.spec.suspend = false
return obj
