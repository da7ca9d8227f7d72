-- Argo CD's health of an AgentRun. `obj` is the live object.
-- What runs is Progressing, what is parked Suspended, what ended badly Degraded.
-- Argo CD opens no string library for it.
local function health(status, message)
  return { status = status, message = message }
end

local status = obj.status
if status == nil or status.phase == nil then
  return health("Progressing", "the operator has not seen it yet")
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return health("Progressing", "the operator has not seen its last change yet")
end

local phase = status.phase
local message = phase
if status.reason ~= nil and status.reason ~= "" and status.reason ~= phase then
  message = message .. " (" .. status.reason .. ")"
end
if status.message ~= nil and status.message ~= "" then
  message = message .. ": " .. status.message
end
if phase ~= "Succeeded" and (status.failures or 0) > 0 then
  message = message .. "; attempts that failed: " .. tostring(status.failures)
end

if phase == "Succeeded" then
  return health("Healthy", message)
end
if phase == "Failed" or phase == "Cancelled" then
  return health("Degraded", message)
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return health("Degraded", message)
  end
end
if phase == "Paused" then
  return health("Suspended", message)
end
return health("Progressing", message)
