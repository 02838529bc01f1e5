-- Removes tasks that no worker would get: Redis knows their names, and the list or set of their state does not have them at
-- their time. A task that waits in the list after all becomes the next to be taken.
--
-- KEYS[1] pending
-- ARGV[1] what the queue's keys begin with
-- ARGV[2...] ids
--
-- Returns for each task 1 if its name is free now, or 0.
local answers = {}
for i = 2, #ARGV do
  local id, key = ARGV[i], ARGV[1] .. "t:" .. ARGV[i]
  local state = redis.pcall("HGET", key, "state") -- a table for a key that holds no hash
  local gone = 1
  if state == "pending" and redis.call("LREM", KEYS[1], 0, id) > 0 and redis.call("HEXISTS", key, "msg") == 1 then
    redis.call("RPUSH", KEYS[1], id)
    gone = 0
  elseif state == "scheduled" or state == "retry" then
    redis.call("ZREM", ARGV[1] .. state, id)
  elseif state == "active" or state == "archived" or state == "completed" then
    gone = 0
  end
  if gone == 1 then
    redis.call("DEL", key)
  end
  answers[#answers + 1] = gone
end
return answers
