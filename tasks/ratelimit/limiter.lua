-- The shared half of a client's rate limit: a token bucket and the day's count.
--
-- KEYS[1] the client's hash: level, at, day, used
-- ARGV[1] requests per minute, which is the bucket's size
-- ARGV[2] requests per UTC day, 0 for no limit
-- ARGV[3] tokens wanted
-- ARGV[4] tokens to add to the bucket first; negative: to remove
-- ARGV[5] requests to take off the day's count first; negative: to add
-- ARGV[6] the UTC day which that concerns, counted from 1970
-- ARGV[7] microseconds since 1970, 0 for Redis' own clock
--
-- Returns tokens taken, what is left in the bucket, the day, and the day's count.
--
-- What is in the bucket is counted in 1/60,000,000 of a token, so that each
-- microsecond adds exactly ARGV[1].
local TOKEN = 60000000
local DAY = 86400000000

local limit = tonumber(ARGV[1])
local per_day = tonumber(ARGV[2])
local wanted = tonumber(ARGV[3])
local now = tonumber(ARGV[7])
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local full = limit * TOKEN
local today = math.floor(now / DAY)

local stored = redis.call('HMGET', KEYS[1], 'level', 'at', 'day', 'used')
local level = tonumber(stored[1] or '') or full
local at = tonumber(stored[2] or '') or now
local used = tonumber(stored[4] or '') or 0
if tonumber(stored[3] or '') ~= today then
  used = 0
end

if now > at then
  level = level + math.min(now - at, TOKEN) * limit
  at = now
end
level = math.max(0, math.min(full, level + tonumber(ARGV[4]) * TOKEN))
if tonumber(ARGV[6]) == today then
  used = math.max(0, used - tonumber(ARGV[5]))
end

local taken = math.min(wanted, math.floor(level / TOKEN))
if per_day > 0 then
  taken = math.max(0, math.min(taken, per_day - used))
end
level = level - taken * TOKEN
used = used + taken

redis.call('HSET', KEYS[1],
  'level', string.format('%.0f', level), 'at', string.format('%.0f', at),
  'day', string.format('%.0f', today), 'used', string.format('%.0f', used))
-- A bucket is full again after a minute at the latest, and then says nothing.
local keep = 61000
if per_day > 0 then
  keep = math.max(keep, math.ceil(((today + 1) * DAY - now) / 1000))
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep))

return {taken, level, today, used}
