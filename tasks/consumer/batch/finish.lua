-- Ends taken tasks, each like asynq's script for it. Those search the whole list for one task, and fail when it is not there.
--
-- KEYS[1] active, KEYS[2] lease, KEYS[3] pending, KEYS[4] scheduled, KEYS[5] archived
-- KEYS[6] and KEYS[7] the day's and the whole count of those that were processed
-- KEYS[8] and KEYS[9] the same of those that failed
-- ARGV[1] what the keys of tasks begin with
-- ARGV[2] the present time, ARGV[3] until when the day's counts are kept, in seconds since 1970
-- ARGV[4] how many archived tasks are kept
-- ARGV[5...] id, what becomes of it, and a value, of each task:
--   done   removes it
--   stale  removes it, without counting it
--   failed archives it, with the value as its message
--   early  puts it among those that wait for their time, the value
--   back   puts it to where tasks are taken next, if its lease still ends at the value
--
-- A task that is not active any more belongs to somebody else. Active ones are searched from the end at which the oldest are.
local active, lease = KEYS[1], KEYS[2]
local ids, gone = {}, {}
local processed, failed = 0, 0

local function isOurs(id, as, value)
  if as == "back" and tonumber(redis.call("ZSCORE", lease, id) or "-1") ~= tonumber(value) then
    return false
  end
  return redis.call("LREM", active, -1, id) == 1
end

for i = 5, #ARGV, 3 do
  local id, as, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local key = ARGV[1] .. id
  if isOurs(id, as, value) then
    ids[#ids + 1] = id
    if as == "early" then
      redis.call("ZADD", KEYS[4], value, id)
      redis.call("HSET", key, "state", "scheduled")
    elseif as == "back" then
      redis.call("RPUSH", KEYS[3], id)
      redis.call("HSET", key, "state", "pending")
    elseif as == "failed" then
      redis.call("ZADD", KEYS[5], ARGV[2], id)
      redis.call("HSET", key, "msg", value, "state", "archived")
      processed, failed = processed + 1, failed + 1
    else
      gone[#gone + 1] = key
      if as == "done" then
        processed = processed + 1
      end
    end
  end
end
if #ids == 0 then
  return 0
end
redis.call("ZREM", lease, unpack(ids))
if #gone > 0 then
  redis.call("DEL", unpack(gone))
end

local function count(day, total, n)
  if n > 0 then
    if redis.call("INCRBY", day, n) == n then
      redis.call("EXPIREAT", day, ARGV[3])
    end
    redis.call("INCRBY", total, n)
  end
end
count(KEYS[6], KEYS[7], processed)
count(KEYS[8], KEYS[9], failed)

-- Only as many at once as one run may take.
local extra = redis.call("ZCARD", KEYS[5]) - tonumber(ARGV[4])
if failed > 0 and extra > 0 then
  local old = redis.call("ZRANGE", KEYS[5], 0, math.min(extra, 500) - 1)
  redis.call("ZREM", KEYS[5], unpack(old))
  for i, id in ipairs(old) do
    old[i] = ARGV[1] .. id
  end
  redis.call("DEL", unpack(old))
end
return #ids
