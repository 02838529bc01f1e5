-- The shared part of a client's rate limit: the tokens taken in the last minute, and the day's count.
--
-- KEYS[1] the client's hash: for each slot of Redis' clock, its number and the tokens taken in it; day, used
-- ARGV[1] tokens per minute
-- ARGV[2] tokens per UTC day, 0 for no limit
-- ARGV[3] tokens wanted
-- ARGV[4] tokens that were used without being taken; they count from now on
-- ARGV[5] change of the day's count, which is applied first
-- ARGV[6] the UTC day of that change, counted from 1970
-- ARGV[7] a slot's width in microseconds
-- ARGV[8] for how many microseconds after its end a slot counts
-- then, for returned tokens: the slot in which they were taken, and their number
--
-- Returns tokens taken, tokens left, the slot, microseconds until a token is left (0: now) and until nothing counts,
-- the day, microseconds until it ends, and its count.
--
-- All times are by Redis' clock, which all processes share. The number of slots depends only on ARGV[7] and ARGV[8],
-- not on the limit.
local DAY = 86400000000

local limit = tonumber(ARGV[1])
local per_day = tonumber(ARGV[2])
local wanted = tonumber(ARGV[3])
local width = tonumber(ARGV[7])
local counts_for = tonumber(ARGV[8])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local current = math.floor(now / width)
local today = math.floor(now / DAY)

local function name(number) return string.format('%.0f', number) end
local function over(slot) return (slot + 1) * width + counts_for - now end

local counts, changed, day, used = {}, {}, nil, 0
local stored = redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
  local field, value = stored[i], tonumber(stored[i + 1])
  local slot = tonumber(field)
  if field == 'day' then
    day = value
  elseif field == 'used' then
    used = value or 0
  elseif not slot or not value or over(slot) <= 0 then
    redis.call('HDEL', KEYS[1], field)
  elseif slot > current then
    -- The clock went back. Tokens from the future count from now, so that they do not count for longer.
    redis.call('HDEL', KEYS[1], field)
    counts[current] = (counts[current] or 0) + value
  else
    counts[slot] = (counts[slot] or 0) + value
  end
end
if day ~= today then
  used = 0
end

for i = 9, #ARGV, 2 do
  local slot = tonumber(ARGV[i])
  if counts[slot] then
    counts[slot] = math.max(0, counts[slot] - tonumber(ARGV[i + 1]))
    changed[slot] = true
  end
end
if tonumber(ARGV[6]) == today then
  used = math.max(0, used + tonumber(ARGV[5]))
end
counts[current] = (counts[current] or 0) + tonumber(ARGV[4])
changed[current] = true

local total, slots = 0, {}
for slot, n in pairs(counts) do
  total = total + n
  slots[#slots + 1] = slot
end
table.sort(slots)

local taken = math.max(0, math.min(wanted, limit - total))
if per_day > 0 then
  taken = math.max(0, math.min(taken, per_day - used))
end
counts[current] = counts[current] + taken
total = total + taken
used = used + taken

for slot in pairs(changed) do
  if counts[slot] > 0 then
    redis.call('HSET', KEYS[1], name(slot), name(counts[slot]))
  else
    redis.call('HDEL', KEYS[1], name(slot))
  end
end
redis.call('HSET', KEYS[1], 'day', name(today), 'used', name(used))
local keep = width + counts_for
if per_day > 0 then
  keep = math.max(keep, (today + 1) * DAY - now)
end
redis.call('PEXPIRE', KEYS[1], name(math.ceil(keep / 1000)))

local free, whole, left = 0, 0, total
for _, slot in ipairs(slots) do
  if left >= limit then
    left = left - counts[slot]
    free = over(slot)
  end
  if counts[slot] > 0 then
    whole = over(slot)
  end
end
return {taken, math.max(0, limit - total), current, free, whole, today, (today + 1) * DAY - now, used}
