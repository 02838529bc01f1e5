-- Takes tasks out of a queue, each like asynq's script, and forgets those of which
-- Redis has no message.
--
-- KEYS[1] pending, KEYS[2] paused, KEYS[3] active, KEYS[4] lease
-- ARGV[1] when the lease ends, in seconds since 1970
-- ARGV[2] what the keys of tasks begin with
-- ARGV[3] how many tasks at most
--
-- Returns id and message of each task.
local taken = {}
if redis.call("EXISTS", KEYS[2]) == 1 then
  return taken
end
for _ = 1, 1000 do -- some may have no message
  if #taken >= 2 * tonumber(ARGV[3]) then
    break
  end
  local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[3])
  if not id then
    break
  end
  local key = ARGV[2] .. id
  local message = redis.pcall("HGET", key, "msg")
  if type(message) ~= "string" then
    redis.call("LREM", KEYS[3], 1, id)
    redis.call("DEL", key)
  else
    redis.call("HSET", key, "state", "active")
    redis.call("HDEL", key, "pending_since")
    redis.call("ZADD", KEYS[4], ARGV[1], id)
    taken[#taken + 1] = id
    taken[#taken + 1] = message
  end
end
return taken
