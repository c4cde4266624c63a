-- Script for the Lua interpreter: numbers, texts, tables, coroutines, errors, garbage, files.
local function sieve(limit)
  local composite, primes = {}, {}
  for number = 2, limit do
    if not composite[number] then
      primes[#primes + 1] = number
      for multiple = number * number, limit, number do composite[multiple] = true end
    end
  end
  return primes
end

local primes = sieve(20000)
print(#primes, primes[#primes], primes[100])

local sum = 0.0
for index = 1, 20000 do sum = sum + math.sin(index) / index end
print(string.format("%.15g %a", sum, sum))
print(7 // 2, -7 // 2, 7 % -3, 7.5 // 2, 2 ^ 0.5, 1 << 62, math.maxinteger + 1 == math.mininteger)

local words = {}
for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do words[#words + 1] = word end
table.sort(words, function(a, b) return a > b end)
print(table.concat(words, " "), ("x"):rep(5, "-"), ("abc"):reverse():upper())
print(("key = value"):match("^(%w+)%s*=%s*(%w+)$"))

local producer = coroutine.wrap(function() for index = 1, 5 do coroutine.yield(index * index) end return "end" end)
print(producer(), producer(), producer())

local ok, message = pcall(function() error({ code = 42 }) end)
print(ok, message.code)
print(pcall(function() return nil + 1 end))

local before = collectgarbage("count")
for _ = 1, 50000 do local garbage = { tostring(_) } end
collectgarbage()
print(collectgarbage("count") < before * 4)

local path = arg[2] .. "/lines"
local file = assert(io.open(path, "w"))
for line = 1, 5000 do file:write(line, "\t", line * 1.5, "\n") end
file:close()
local count, total = 0, 0
for line in io.lines(path) do
  local first, second = line:match("(%d+)\t([%d.]+)")
  count, total = count + tonumber(first), total + tonumber(second)
end
print(count, total)
file = io.open(path)
print(file:seek("end"), file:seek("set", 10), file:read("l"), file:read("n"))
file:close()
print(os.remove(path), os.rename(path, path .. "x"))
print(os.time({ year = 2026, month = 1, day = 1, hour = 12 }), os.getenv("NOTHING"))
