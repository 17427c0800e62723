-- Prepares the globals of a script: Redis's functions, which `machine.rs` passes, and the sandbox.
-- Tables of a script's environment are read-only, as in Redis: scripts see empty tables that refer
-- to them. Each script has its own Lua state, which its runs share if it does not name the functions
-- that change tables or environments of others (`TRACES` in `machine.rs`).

local rust = ...
local error, next, pairs, rawget, rawset, select, type = error, next, pairs, rawget, rawset, select, type
local getmetatable, setmetatable, tostring, xpcall = getmetatable, setmetatable, tostring, xpcall
local concat, floor, globals = table.concat, math.floor, _G

-- Longest pattern: the matcher of Lua 5.1 recurses for each item.
local PATTERN_MAX = 16384
-- Most results of unpack: far beyond it, Lua 5.1 computes with too small integers.
local RESULTS_MAX = 7997

-- Read-only tables.

local hidden = {}

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local function protect(shown, behind, index)
  hidden[shown] = behind
  return setmetatable(shown, { __index = index or behind, __newindex = refuse, __metatable = false })
end

local function read_only(behind)
  return protect({}, behind)
end

local function absent(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- Errors. `rust.reason` returns the value that a script may see, or fails again if the script is to
-- be stopped.

local function caught(done, ...)
  if done then return true, ... end
  return false, rust.reason((...))
end

local function with_text(done, ...)
  if done then return true, ... end
  local reason = ...
  if type(reason) == 'table' then
    local text = rawget(reason, 'err')
    if type(text) == 'string' then reason = text end
  end
  return false, reason
end

local function protected_call(...)
  return with_text(caught(rust.pcall(...)))
end

local resume = coroutine.resume
local coroutines = {
  create = coroutine.create, running = coroutine.running, status = coroutine.status,
  wrap = coroutine.wrap, yield = coroutine.yield,
  resume = function(...) return caught(resume(...)) end,
}

-- Lua's own functions, without those that reach files or code that is not text.

local loadstring, unpack, find, match, gmatch, gsub =
  loadstring, unpack, string.find, string.match, string.gmatch, string.gsub

local function load_text(code, name)
  if type(code) ~= 'string' then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(code) .. ")", 2)
  end
  if code:byte() == 27 then return nil, 'bytecode cannot be loaded' end
  -- Lua 5.1 does not keep the name while it parses; this variable does.
  local kept = match(tostring(name or code), '^%Z*')
  return loadstring(code, kept)
end

local function load_pieces(f, name)
  local pieces = {}
  while true do
    local piece = f()
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' then error('reader function must return a string', 2) end
    pieces[#pieces + 1] = piece
  end
  return load_text(concat(pieces), name or '=(load)')
end

local function unpack_some(list, first, last)
  if first == nil and last == nil and #list < 8000 then return unpack(list) end
  first, last = first or 1, last or #list
  if type(first) == 'number' and type(last) == 'number' and last - first >= RESULTS_MAX then
    error('too many results to unpack', 2)
  end
  return unpack(list, first, last)
end

local function check_pattern(pattern)
  if type(pattern) == 'string' and #pattern > PATTERN_MAX then error('pattern too long', 3) end
end

string.find = function(s, pattern, init, plain)
  if not plain then check_pattern(pattern) end
  return find(s, pattern, init, plain)
end
string.match = function(s, pattern, init)
  check_pattern(pattern)
  return match(s, pattern, init)
end
string.gmatch = function(s, pattern)
  check_pattern(pattern)
  return gmatch(s, pattern)
end
string.gfind = string.gmatch
string.gsub = function(s, pattern, ...)
  check_pattern(pattern)
  return gsub(s, pattern, ...)
end

math.random, math.randomseed = rust.random, rust.randomseed

-- Redis's functions.

local api, cjson = rust.api, rust.cjson
local log = { log = api.log, REDIS_VERSION = rust.version, REDIS_VERSION_NUM = rust.version_number }
for level, name in pairs({ [0] = 'LOG_DEBUG', 'LOG_VERBOSE', 'LOG_NOTICE', 'LOG_WARNING' }) do
  log[name] = level
end
for name, value in pairs(log) do api[name] = value end
api.REPL_NONE, api.REPL_AOF, api.REPL_SLAVE, api.REPL_REPLICA, api.REPL_ALL = 0, 1, 2, 2, 3
local load_api = { register_function = rust.register_function }
for name, value in pairs(log) do load_api[name] = value end

cjson.null, cjson._NAME, cjson._VERSION = rust.null, 'cjson', '2.1.0'

local environment = {
  _VERSION = _VERSION, assert = assert, collectgarbage = collectgarbage, error = error,
  gcinfo = gcinfo, getfenv = getfenv, ipairs = ipairs, load = load_pieces, loadstring = load_text,
  pcall = protected_call, rawequal = rawequal, select = select, setfenv = setfenv, tonumber = tonumber,
  tostring = tostring, type = type, unpack = unpack_some,
  getmetatable = function(...)
    local found = getmetatable(...)
    if hidden[(...)] then return read_only({ __index = absent }) end
    return found
  end,
  next = function(t, ...) return next(hidden[t] or t, ...) end,
  pairs = function(t) return pairs(hidden[t] or t) end,
  rawget = function(t, ...) return rawget(hidden[t] or t, ...) end,
  rawset = function(t, ...)
    if hidden[t] then error('Attempt to modify a readonly table', 0) end
    return rawset(t, ...)
  end,
  setmetatable = function(t, ...)
    if hidden[t] then error('Attempt to modify a readonly table', 0) end
    return setmetatable(t, ...)
  end,
  xpcall = function(f, handler)
    return caught(xpcall(f, function(reason) return handler(rust.reason(reason)) end))
  end,
  bit = read_only(rust.bit),
  cjson = read_only(cjson),
  cmsgpack = read_only(rust.cmsgpack),
  coroutine = read_only(coroutines),
  math = read_only(math),
  os = read_only({ clock = rust.clock }),
  redis = read_only(api),
  string = read_only(string),
  struct = read_only(rust.struct),
  table = read_only(table),
}
rust.pcall = pcall
environment._G = globals
setmetatable(environment, { __index = absent })

-- While a library is loaded, it can only register functions.
local guard = { __index = absent }
local loading = setmetatable({ redis = protect({}, load_api, setmetatable(load_api, guard)) }, guard)

for name in pairs(globals) do rawset(globals, name, nil) end
local outer = { __index = environment, __newindex = refuse, __metatable = false }
hidden[globals] = environment
setmetatable(globals, outer)

local function handler(reason)
  reason = rust.reason(reason)
  if type(reason) ~= 'table' then reason = { err = 'ERR ' .. tostring(reason) } end
  local source, line = rust.position()
  if source then
    rawset(reason, 'source', source)
    rawset(reason, 'line', line)
  end
  return reason
end

-- The entry points for Rust.
return {
  set_keys = function(keys, arguments)
    environment.KEYS, environment.ARGV = keys, arguments
  end,
  set_loading = function(is_loading)
    outer.__index = is_loading and loading or environment
  end,
  run = function(f, ...)
    local arguments = { n = select('#', ...), ... }
    return xpcall(function() return f(unpack(arguments, 1, arguments.n)) end, handler)
  end,
  -- Lua's functions for lists, such as `table.insert`, change the tables that stand for read-only ones.
  is_untouched = function()
    for shown in pairs(hidden) do
      if next(shown) ~= nil then return false end
    end
    return true
  end,
}
