
local ev_port = ProtoField.uint16("mrc.ev.source_port", "EV half in the source port", base.HEX)
local ev_label = ProtoField.uint16("mrc.ev.flow_label", "EV half in the flow label", base.HEX)
local ev_value = ProtoField.uint32("mrc.ev.value", "EV", base.HEX)
local opcode_name = ProtoField.string("mrc.opcode", "Packet")
local payload = ProtoField.bytes("mrc.payload", "Payload")
local payload_length = ProtoField.uint32("mrc.payload_length", "Payload length")
local trimmed = ProtoField.bool("mrc.trimmed", "Ends early: trimmed by a switch, or cut by the capture")
local icrc = ProtoField.uint32("infiniband.invariant.crc", "Invariant CRC", base.HEX)

local carrier = ProtoField.string("mrc.carrier", "Carrier")
local carrier_plane = ProtoField.uint8("mrc.carrier.plane", "Plane")
local carrier_hop = ProtoField.string("mrc.carrier.hop", "Hop")

local fields = {ev_port, ev_label, ev_value, opcode_name, payload, payload_length, trimmed, icrc,
  carrier, carrier_plane, carrier_hop}
for _, header in pairs(headers) do
  for _, field in ipairs(header.fields) do
    fields[#fields + 1] = field.proto
  end
end
mrc.fields = fields

mrc.prefs.label_first = Pref.bool("EV: flow label is the upper half", true,
  "On: ECMP and label-first STEV. Off: STEV with the source port first.")

local udp_source = Field.new("udp.srcport")
local ipv6_label = Field.new("ipv6.flow")

local function last_value(field)
  local all = {field()}
  return #all > 0 and tonumber(tostring(all[#all].value)) or 0
end

local function add_ev(tree)
  local port, label = last_value(udp_source), last_value(ipv6_label) % 65536
  local value = mrc.prefs.label_first and label * 65536 + port or port * 65536 + label
  local branch = tree:add(ev_value, value):set_generated()
  branch:add(ev_port, port):set_generated()
  branch:add(ev_label, label):set_generated()
end

local ipv6_destination = Field.new("ipv6.dst")

-- Returns a switch's or port's name and what it is; nil for a uSID of no range.
local function named(plane, usid)
  for _, range in ipairs(plane) do
    local offset = usid - range.first
    if offset >= 0 and offset < range.values then
      local index = math.floor(offset / range.outer) * range.outer_weight
        + math.floor(offset % range.outer / range.inner) * range.inner_weight
      if range.kind == "port" then
        return "port " .. index, range.kind
      elseif range.kind == "nic" then
        return "NIC", range.kind
      end
      return string.format("p%d-%s-%0" .. range.digits .. "d", plane.number, range.kind, index), range.kind
    end
  end
end

-- The uSIDs still to be consumed: switches, then the port of the last; a T0 behind the port is the NIC's own.
local function hops_of(plane, range)
  local hops, last = {}, nil
  for at = 4, 14, 2 do
    local usid = range(at, 2):uint()
    if usid == 0 then break end
    local name, kind = named(plane, usid)
    if last == "port" then
      if #hops == 1 and kind == "t0" then hops[1] = hops[1] .. " of " .. name end
      break
    end
    hops[#hops + 1] = name or string.format("0x%04x", usid)
    last = kind
  end
  return hops
end

-- Planes may share a block; their uSIDs tell them apart.
local function plane_of(range)
  local found = nil
  for _, plane in ipairs(planes) do
    if plane.block == range(0, 4):uint() then
      if named(plane, range(4, 2):uint()) then return plane end
      found = found or plane
    end
  end
  return found
end

local function add_carrier(tree)
  local all = {ipv6_destination()}
  local range = #all > 0 and all[#all].range
  local plane = range and plane_of(range)
  if not plane then return end
  local hops = hops_of(plane, range)
  local branch = tree:add(carrier, range, string.format("plane %d: %s", plane.number, table.concat(hops, " > ")))
  branch:set_generated()
  branch:add(carrier_plane, range(0, 4), plane.number):set_generated()
  for _, hop in ipairs(hops) do
    branch:add(carrier_hop, hop):set_generated()
  end
end

local function value_of(field, bytes)
  local value = bytes:bitfield(field.offset, field.width)
  if field.width == 1 then
    return value == 1
  end
  local sign = 2 ^ (field.width - 1)
  local unsigned = field.unsigned_when and bytes:bitfield(field.unsigned_when, 1) == 1
  if field.signed and not unsigned and value >= sign then
    return value - 2 * sign
  end
  return value
end

local function add_header(tree, header, bytes)
  local branch = tree:add(mrc, bytes, header.title)
  local values = {}
  for _, field in ipairs(header.fields) do
    local first = math.floor(field.offset / 8)
    local last = math.floor((field.offset + field.width - 1) / 8)
    local range = bytes(first, last - first + 1)
    if field.is_bytes then
      branch:add(field.proto, range)
    else
      values[field.name] = value_of(field, bytes)
      branch:add(field.proto, range, values[field.name])
    end
  end
  return values
end

-- Returns the values of all headers, where they end, and whether the bytes ended before they did.
local function add_headers(tree, packet, bytes)
  local at, values, timestamped = 0, {}, bytes(8, 1):bitfield(3, 1) == 1
  for _, header in ipairs(packet) do
    if header ~= OPTIONAL or timestamped then
      if at + header.size > bytes:len() then
        return values, at, true
      end
      for name, value in pairs(add_header(tree, header, bytes(at, header.size))) do
        values[name] = value
      end
      at = at + header.size
    end
  end
  return values, at, false
end

local function add_end(tree, packet, bytes, at, pad, is_cut)
  local rest = bytes:len() - at - 4 - pad
  if is_cut or rest < 0 then
    tree:add(trimmed, true):set_generated()
    return 0
  end
  if packet.has_payload then
    if rest > 0 then
      tree:add(payload, bytes(at, rest))
    end
    tree:add(payload_length, rest):set_generated()
  end
  tree:add(icrc, bytes(bytes:len() - 4, 4))
  return rest
end

local function summary(packet, values, length)
  local text = string.format("%s QP=0x%x PSN=%u", packet.name, values.dqp, values.psn)
  if packet.has_payload then
    text = text .. string.format(" MSN=%u %u bytes", values.msn or 0, length)
  elseif values.cack_psn then
    text = text .. string.format(" CACK=%u", values.cack_psn)
  elseif values.nack_psn then
    text = text .. string.format(" NACK=%u", values.nack_psn)
  end
  return values.rtx and text .. " [rtx]" or text
end

local function dissect(tvb, pinfo, tree, packet)
  local branch = tree:add(mrc, tvb())
  branch:add(opcode_name, tvb(0, 1), packet.name)
  add_ev(branch)
  add_carrier(branch)
  local values, at, is_cut = add_headers(branch, packet, tvb())
  local length = add_end(branch, packet, tvb(), at, values.pad, is_cut or tvb:len() < tvb:reported_len())
  pinfo.cols.protocol = "MRC"
  pinfo.cols.info = summary(packet, values, length)
  return tvb:len()
end

local table_of_ports = DissectorTable.get("udp.port")
local before = {}
for _, port in ipairs(PORTS) do
  before[port] = table_of_ports:get_dissector(port)
end

function mrc.dissector(tvb, pinfo, tree)
  if tvb:len() >= headers.bth.size and math.floor(tvb(0, 1):uint() / 32) == GROUP then
    local unknown = {name = "UNKNOWN", has_payload = true, headers.bth}
    return dissect(tvb, pinfo, tree, packets[tvb(0, 1):uint()] or unknown)
  end
  local builtin = before[pinfo.dst_port] or before[pinfo.src_port] or before[PORTS[1]]
  return builtin and builtin:call(tvb, pinfo, tree) or 0
end

for _, port in ipairs(PORTS) do
  table_of_ports:add(port, mrc)
end
