-- Puts tasks that were taken back to where they are taken next. asynq's script puts
-- one, whoever has it: here only those whose lease is the one that was given.
--
-- KEYS[1] active, KEYS[2] lease, KEYS[3] pending
-- ARGV[1] what the keys of tasks begin with
-- ARGV[2] when the lease ends, in seconds since 1970
-- ARGV[3...] ids, the first one taken last
for i = 3, #ARGV do
  local lease = redis.call("ZSCORE", KEYS[2], ARGV[i])
  if lease and tonumber(lease) == tonumber(ARGV[2]) and redis.call("LREM", KEYS[1], 1, ARGV[i]) == 1 then
    redis.call("ZREM", KEYS[2], ARGV[i])
    redis.call("RPUSH", KEYS[3], ARGV[i])
    redis.call("HSET", ARGV[1] .. ARGV[i], "state", "pending")
  end
end
return 0
