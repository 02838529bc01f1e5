-- Removes handled tasks. asynq's script removes one, searches the whole list, and
-- fails when it is not there.
--
-- KEYS[1] active, KEYS[2] lease, KEYS[3] the day's count, KEYS[4] the count
-- ARGV[1] until when the day's count is kept, in seconds since 1970
-- ARGV[2] what the keys of tasks begin with
-- ARGV[3...] ids
--
-- A task that is not active any more belongs to somebody else. Active ones are
-- searched from the end at which the oldest are.
local ids, keys = {}, {}
for i = 3, #ARGV do
  if redis.call("LREM", KEYS[1], -1, ARGV[i]) == 1 then
    ids[#ids + 1] = ARGV[i]
    keys[#keys + 1] = ARGV[2] .. ARGV[i]
  end
end
if #ids == 0 then
  return 0
end
redis.call("ZREM", KEYS[2], unpack(ids))
redis.call("DEL", unpack(keys))
if redis.call("INCRBY", KEYS[3], #ids) == #ids then
  redis.call("EXPIREAT", KEYS[3], ARGV[1])
end
redis.call("INCRBY", KEYS[4], #ids)
return #ids
