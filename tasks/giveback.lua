-- Puts tasks that were taken back to where they are taken next, as asynq's own
-- script puts one.
--
-- KEYS[1] active, KEYS[2] lease, KEYS[3] pending
-- ARGV[1] what the keys of tasks begin with
-- ARGV[2...] ids, the first one taken last
for i = 2, #ARGV do
  if redis.call("LREM", KEYS[1], 1, ARGV[i]) == 1 then
    redis.call("ZREM", KEYS[2], ARGV[i])
    redis.call("RPUSH", KEYS[3], ARGV[i])
    redis.call("HSET", ARGV[1] .. ARGV[i], "state", "pending")
  end
end
return 0
