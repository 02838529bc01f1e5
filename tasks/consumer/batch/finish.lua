-- Ends handled tasks: removes them, or archives those that failed. asynq's scripts do that for one task, search the
-- whole list for it, and fail when it is not there.
--
-- KEYS[1] active, KEYS[2] lease, KEYS[3] archived
-- KEYS[4] and KEYS[5] the day's and the whole count of those that were processed
-- KEYS[6] and KEYS[7] the same of those that failed
-- ARGV[1] until when the day's counts are kept, in seconds since 1970
-- ARGV[2] what the keys of tasks begin with
-- ARGV[3] the present time, in seconds since 1970
-- ARGV[4] tasks that were archived before this time are removed
-- ARGV[5] how many archived tasks are kept
-- ARGV[6...] id, what becomes of it (done, stale, failed), and the message to keep, of each task
--
-- A stale task is not counted. A task that is not active any more belongs to somebody else. Active ones are searched
-- from the end at which the oldest are.
local ids, gone = {}, {}
local processed, failed = 0, 0
for i = 6, #ARGV, 3 do
  local id, key = ARGV[i], ARGV[2] .. ARGV[i]
  if redis.call("LREM", KEYS[1], -1, id) == 1 then
    ids[#ids + 1] = id
    if ARGV[i + 1] == "failed" then
      redis.call("ZADD", KEYS[3], ARGV[3], id)
      redis.call("HSET", key, "msg", ARGV[i + 2], "state", "archived")
      failed = failed + 1
    else
      gone[#gone + 1] = key
    end
    if ARGV[i + 1] ~= "stale" then
      processed = processed + 1
    end
  end
end
if #ids == 0 then
  return 0
end
redis.call("ZREM", KEYS[2], unpack(ids))
if #gone > 0 then
  redis.call("DEL", unpack(gone))
end

local function count(day, total, n)
  if n > 0 then
    if redis.call("INCRBY", day, n) == n then
      redis.call("EXPIREAT", day, ARGV[1])
    end
    redis.call("INCRBY", total, n)
  end
end
count(KEYS[4], KEYS[5], processed)
count(KEYS[6], KEYS[7], failed)

-- Only as many at once as one run may take.
local function forget(old)
  if #old > 0 then
    redis.call("ZREM", KEYS[3], unpack(old))
    for i, id in ipairs(old) do
      old[i] = ARGV[2] .. id
    end
    redis.call("DEL", unpack(old))
  end
end
if failed > 0 then
  forget(redis.call("ZRANGEBYSCORE", KEYS[3], "-inf", ARGV[4], "LIMIT", 0, 500))
  local extra = redis.call("ZCARD", KEYS[3]) - tonumber(ARGV[5])
  if extra > 0 then
    forget(redis.call("ZRANGE", KEYS[3], 0, math.min(extra, 500) - 1))
  end
end
return #ids
