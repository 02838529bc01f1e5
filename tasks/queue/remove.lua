-- Removes tasks that nobody has taken, in whatever state. Those that wait to be taken stay if they are more than the
-- limit: Redis would search the whole list, and who takes such a task finds nothing to do.
--
-- KEYS[1] pending
-- ARGV[1] what the queue's keys begin with
-- ARGV[2] the limit
-- ARGV[3...] ids
--
-- Returns how many of the tasks were not there.
local missing = 0
for i = 3, #ARGV do
  local key = ARGV[1] .. "t:" .. ARGV[i]
  local state = redis.call("HGET", key, "state")
  if not state then
    missing = missing + 1
  elseif state == "pending" then
    if redis.call("LLEN", KEYS[1]) <= tonumber(ARGV[2]) then
      redis.call("LREM", KEYS[1], 0, ARGV[i])
      redis.call("DEL", key)
    end
  elseif state ~= "active" then
    redis.call("ZREM", ARGV[1] .. state, ARGV[i])
    redis.call("DEL", key)
  end
end
return missing
