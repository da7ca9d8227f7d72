-- Which actions Argo CD offers for an AgentRun. `obj` is the live object.
local spec = obj.spec or {}
local phase = (obj.status or {}).phase
local ended = phase == "Succeeded" or phase == "Failed" or phase == "Cancelled"
local stopping = spec.shutdown ~= nil

return {
  suspend = { disabled = ended or stopping or spec.suspend == true },
  resume = { disabled = ended or stopping or spec.suspend ~= true },
  stop = { disabled = ended or stopping },
  retry = { disabled = phase ~= "Failed" or stopping },
}
