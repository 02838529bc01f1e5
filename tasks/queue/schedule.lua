-- Puts a task that waits for its time into a queue, like asynq's script, if there is room for it: among more than the
-- limit, the farthest give way to nearer ones.
--
-- KEYS[1] the task's key, KEYS[2] scheduled
-- ARGV[1] message
-- ARGV[2] the time, in seconds since 1970
-- ARGV[3] id
-- ARGV[4] how many tasks there may be
-- ARGV[5] what the keys of tasks begin with
--
-- Returns 1, or 0 if the id is taken, or 2 if there is no room.
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
local over = redis.call("ZCARD", KEYS[2]) + 1 - tonumber(ARGV[4])
for _ = 1, math.min(over, 100) do
  local last = redis.call("ZRANGE", KEYS[2], -1, -1, "WITHSCORES")
  if not last[2] or tonumber(last[2]) <= tonumber(ARGV[2]) then
    return 2
  end
  redis.call("ZREM", KEYS[2], last[1])
  redis.call("DEL", ARGV[5] .. last[1])
end
redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "scheduled")
redis.call("ZADD", KEYS[2], ARGV[2], ARGV[3])
return 1
