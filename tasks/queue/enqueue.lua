-- Puts tasks into a queue, in their order, each as asynq's own scripts do it for one: pending, or, if its time has not come
-- and there is room, scheduled. Among more scheduled tasks than the limit, the farthest give way to nearer ones.
--
-- KEYS[1] pending, KEYS[2] scheduled
-- ARGV[1] what the keys of tasks begin with
-- ARGV[2] the present time, in nanoseconds since 1970
-- ARGV[3] how many tasks may be scheduled
-- ARGV[4...] id, message, and the time in seconds since 1970, or "" for one that is due, of each task
--
-- Returns for each task 1, or 0 if the id is taken, or 2 if there is no room.
local pending, scheduled, prefix = KEYS[1], KEYS[2], ARGV[1]

local function room(at)
  local over = redis.call("ZCARD", scheduled) + 1 - tonumber(ARGV[3])
  for _ = 1, math.min(over, 100) do
    local last = redis.call("ZRANGE", scheduled, -1, -1, "WITHSCORES")
    if not last[2] or tonumber(last[2]) <= tonumber(at) then
      return false
    end
    redis.call("ZREM", scheduled, last[1])
    redis.call("DEL", prefix .. last[1])
  end
  return true
end

local answers, due = {}, {}
for i = 4, #ARGV, 3 do
  local id, message, at = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local key, answer = prefix .. id, 1
  local known = redis.pcall("HMGET", key, "msg", "state")
  if known.err or known[1] ~= known[2] and not (known[1] and known[2]) then
    redis.call("DEL", key) -- what is left of a damaged task
    known = {}
  end
  if known[1] then
    answer = 0
  elseif at == "" then
    redis.call("HSET", key, "msg", message, "state", "pending", "pending_since", ARGV[2])
    due[#due + 1] = id
  elseif room(at) then
    redis.call("HSET", key, "msg", message, "state", "scheduled")
    redis.call("ZADD", scheduled, at, id)
  else
    answer = 2
  end
  answers[#answers + 1] = answer
end
if #due > 0 then
  redis.call("LPUSH", pending, unpack(due))
end
return answers
