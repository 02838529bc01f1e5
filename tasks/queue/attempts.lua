-- Shows attempts to deliver in the queue: counts them, and keeps a task of each delivery that waits for its next one or
-- was given up. asynq's scripts do each of that for the task that a handler has; an attempt has none.
--
-- KEYS[1] scheduled, KEYS[2] archived
-- KEYS[3] and KEYS[4] the day's and the whole count of attempts
-- KEYS[5] and KEYS[6] the same of those that failed
-- ARGV[1] what the keys of tasks begin with
-- ARGV[2] what the keys begin with under which the waiting tasks of each endpoint are
-- ARGV[3] how many of one endpoint may wait
-- ARGV[4] how many may wait
-- ARGV[5] how many that were given up are kept
-- ARGV[6] the present time, ARGV[7] until when the day's counts are kept, in seconds since 1970
-- ARGV[8] how many attempts there were, ARGV[9] how many of them failed
-- ARGV[10...] what is to be done, an endpoint, a task's id, its message, and its time, of each step:
--   forget removes a task that waits; its attempt has been made
--   wait   puts a task among those that wait, if there is room: the farthest give way to nearer ones
--   keep   puts a task into the archive
--   drop   removes all tasks of the endpoint that wait
--
-- An id begins with its endpoint's. Returns how many tasks were put among those that wait.
local scheduled, archived = KEYS[1], KEYS[2]

local function remove(id)
  redis.call("ZREM", scheduled, id)
  redis.call("ZREM", ARGV[2] .. string.sub(id, 1, 36), id)
  redis.call("DEL", ARGV[1] .. id)
end

-- Makes room for a task in a set that is full, and reports whether it has some.
local function room(set, most, at)
  if redis.call("ZCARD", set) < tonumber(most) then
    return true
  end
  local last = redis.call("ZRANGE", set, -1, -1, "WITHSCORES")
  if tonumber(last[2]) <= tonumber(at) then
    return false
  end
  remove(last[1])
  return true
end

local function wait(endpoint, id, message, at)
  local key, set = ARGV[1] .. id, ARGV[2] .. endpoint
  if redis.call("EXISTS", key) == 1 then
    return 0
  end
  for _, other in ipairs(redis.call("ZRANGE", set, 0, -1)) do
    if not redis.call("ZSCORE", scheduled, other) then
      redis.call("ZREM", set, other) -- its time has come
    end
  end
  if not room(set, ARGV[3], at) or not room(scheduled, ARGV[4], at) then
    return 0
  end
  redis.call("HSET", key, "msg", message, "state", "scheduled")
  redis.call("ZADD", scheduled, at, id)
  redis.call("ZADD", set, at, id)
  local last = redis.call("ZRANGE", set, -1, -1, "WITHSCORES")
  redis.call("EXPIREAT", set, math.ceil(tonumber(last[2])) + 3600)
  return 1
end

local function count(day, total, n)
  if n > 0 then
    if redis.call("INCRBY", day, n) == n then
      redis.call("EXPIREAT", day, ARGV[7])
    end
    redis.call("INCRBY", total, n)
  end
end
count(KEYS[3], KEYS[4], tonumber(ARGV[8]))
count(KEYS[5], KEYS[6], tonumber(ARGV[9]))

local added = 0
for i = 10, #ARGV, 5 do
  local step, endpoint, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if step == "forget" then
    if redis.call("HGET", ARGV[1] .. id, "state") == "scheduled" then
      remove(id)
    end
  elseif step == "wait" then
    added = added + wait(endpoint, id, ARGV[i + 3], ARGV[i + 4])
  elseif step == "keep" then
    redis.call("HSET", ARGV[1] .. id, "msg", ARGV[i + 3], "state", "archived")
    redis.call("ZADD", archived, ARGV[6], id)
  else
    for _, other in ipairs(redis.call("ZRANGE", ARGV[2] .. endpoint, 0, -1)) do
      if redis.call("HGET", ARGV[1] .. other, "state") == "scheduled" then
        remove(other)
      end
    end
    redis.call("DEL", ARGV[2] .. endpoint)
  end
end

local extra = redis.call("ZCARD", archived) - tonumber(ARGV[5])
if extra > 0 then
  local old = redis.call("ZRANGE", archived, 0, math.min(extra, 500) - 1)
  redis.call("ZREM", archived, unpack(old))
  for i, id in ipairs(old) do
    old[i] = ARGV[1] .. id
  end
  redis.call("DEL", unpack(old))
end
return added
