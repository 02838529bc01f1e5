-- Puts a task that came too early back among those that wait for their time.
--
-- KEYS[1] active, KEYS[2] lease, KEYS[3] scheduled, KEYS[4] the task's key
-- ARGV[1] id
-- ARGV[2] the time, in seconds since 1970
if redis.call("LREM", KEYS[1], -1, ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
redis.call("ZREM", KEYS[2], ARGV[1])
redis.call("ZADD", KEYS[3], ARGV[2], ARGV[1])
redis.call("HSET", KEYS[4], "state", "scheduled")
return redis.status_reply("OK")
