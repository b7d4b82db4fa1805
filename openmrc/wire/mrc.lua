-- Multipath Reliable Connection (OCP MRC 1.0) for Wireshark and tshark.
-- Made by `mrc decode --lua` from openmrc's table of headers: do not edit.
-- SPDX-License-Identifier: Apache-2.0
--
-- Takes packets of MRC's opcode group (0xC0-0xDF) on its UDP ports and hands everything else to the
-- dissector that was there before. BTH, RETH, AETH, ImmDt and the ICRC keep Wireshark's own filter
-- names (infiniband.*); what is MRC's own is called mrc.*.

local mrc = Proto("mrc", "Multipath Reliable Connection")

local GROUP = 6  -- opcode bits 7:5 of MRC
local PORTS = {4791, 4971}

local headers = {}

headers.bth = {
  title = "Base Transport Header (BTH)", size = 12,
  fields = {
    {name = "opcode", offset = 0, width = 8, proto = ProtoField.uint8("infiniband.bth.opcode", "opcode", base.DEC, {[198] = "WRITE_FIRST", [199] = "WRITE_MIDDLE", [200] = "WRITE_LAST", [201] = "WRITE_LAST_IMM", [202] = "WRITE_ONLY", [203] = "WRITE_ONLY_IMM", [209] = "ACKNOWLEDGE", [216] = "ENDPOINT_REQUEST", [217] = "ENDPOINT_RESPONSE", [220] = "SACK", [221] = "NACK", [222] = "PROBE"})},
    {name = "se", offset = 8, width = 1, proto = ProtoField.bool("infiniband.bth.se", "se")},
    {name = "m", offset = 9, width = 1, proto = ProtoField.bool("infiniband.bth.m", "m")},
    {name = "pad", offset = 10, width = 2, proto = ProtoField.uint8("infiniband.bth.padcnt", "pad", base.DEC)},
    {name = "tver", offset = 12, width = 4, proto = ProtoField.uint8("infiniband.bth.tver", "tver", base.DEC)},
    {name = "p_key", offset = 16, width = 16, proto = ProtoField.uint16("infiniband.bth.p_key", "p_key", base.HEX)},
    {name = "dqp", offset = 40, width = 24, proto = ProtoField.uint24("infiniband.bth.destqp", "dqp", base.HEX)},
    {name = "a", offset = 64, width = 1, proto = ProtoField.bool("infiniband.bth.a", "a")},
    {name = "rtx", offset = 66, width = 1, proto = ProtoField.bool("mrc.bth.rtx", "rtx")},
    {name = "ts", offset = 67, width = 1, proto = ProtoField.bool("mrc.bth.ts", "ts")},
    {name = "psn", offset = 72, width = 24, proto = ProtoField.uint24("infiniband.bth.psn", "psn", base.DEC)},
  },
}

headers.meth = {
  title = "Message Extended Transport Header (METH)", size = 4,
  fields = {
    {name = "rqmsn", offset = 0, width = 16, proto = ProtoField.uint16("mrc.meth.rqmsn", "rqmsn", base.DEC)},
    {name = "msn", offset = 16, width = 16, proto = ProtoField.uint16("mrc.meth.msn", "msn", base.DEC)},
  },
}

headers.tseth = {
  title = "Timestamp Extended Transport Header (TSETH)", size = 4,
  fields = {
    {name = "tx_timestamp", offset = 0, width = 16, proto = ProtoField.uint16("mrc.tseth.tx_timestamp", "tx_timestamp", base.DEC)},
    {name = "tsr", offset = 16, width = 1, proto = ProtoField.bool("mrc.tseth.tsr", "tsr")},
    {name = "ftype", offset = 28, width = 4, proto = ProtoField.uint8("mrc.tseth.ftype", "ftype", base.DEC)},
  },
}

headers.reth = {
  title = "RDMA Extended Transport Header (RETH)", size = 16,
  fields = {
    {name = "va", offset = 0, width = 64, proto = ProtoField.uint64("infiniband.reth.va", "va", base.HEX)},
    {name = "r_key", offset = 64, width = 32, proto = ProtoField.uint32("infiniband.reth.r_key", "r_key", base.HEX)},
    {name = "dmalen", offset = 96, width = 32, proto = ProtoField.uint32("infiniband.reth.dmalen", "dmalen", base.DEC)},
  },
}

headers.immdt = {
  title = "Immediate Data (IMMDT)", size = 4,
  fields = {
    {name = "immediate", offset = 0, width = 32, is_bytes = true, proto = ProtoField.bytes("infiniband.immdt", "immediate")},
  },
}

headers.aeth = {
  title = "Acknowledge Extended Transport Header (AETH)", size = 4,
  fields = {
    {name = "syndrome", offset = 0, width = 8, proto = ProtoField.uint8("infiniband.aeth.syndrome", "syndrome", base.HEX, {[31] = "ACK", [97] = "INVALID_REQUEST", [98] = "REMOTE_ACCESS_ERROR", [99] = "REMOTE_OPERATIONAL_ERROR"})},
    {name = "msn", offset = 8, width = 24, proto = ProtoField.uint24("infiniband.aeth.msn", "msn", base.DEC)},
  },
}

headers.seth = {
  title = "SACK Extended Transport Header (SETH)", size = 28,
  fields = {
    {name = "type", offset = 0, width = 4, proto = ProtoField.uint8("mrc.seth.type", "type", base.DEC)},
    {name = "next", offset = 4, width = 5, proto = ProtoField.uint8("mrc.seth.next", "next", base.DEC)},
    {name = "m", offset = 9, width = 2, proto = ProtoField.uint8("mrc.seth.m", "m", base.DEC, {[0] = "NONE", [1] = "SKIP_ONCE", [2] = "ALWAYS_SKIP"})},
    {name = "pr", offset = 14, width = 1, proto = ProtoField.bool("mrc.seth.pr", "pr")},
    {name = "ack_psn_offset", offset = 16, width = 16, signed = true, unsigned_when = 14, proto = ProtoField.int32("mrc.seth.ack_psn_offset", "ack_psn_offset", base.DEC)},
    {name = "entropy", offset = 32, width = 32, proto = ProtoField.uint32("mrc.seth.entropy", "entropy", base.HEX)},
    {name = "spdcid", offset = 64, width = 16, proto = ProtoField.uint16("mrc.seth.spdcid", "spdcid", base.DEC)},
    {name = "dpdcid", offset = 80, width = 16, proto = ProtoField.uint16("mrc.seth.dpdcid", "dpdcid", base.DEC)},
    {name = "cack_psn", offset = 104, width = 24, proto = ProtoField.uint24("mrc.seth.cack_psn", "cack_psn", base.DEC)},
    {name = "cc_type", offset = 128, width = 4, proto = ProtoField.uint8("mrc.seth.cc_type", "cc_type", base.DEC)},
    {name = "cc_fl", offset = 132, width = 4, proto = ProtoField.uint8("mrc.seth.cc_fl", "cc_fl", base.DEC)},
    {name = "mpr", offset = 136, width = 8, proto = ProtoField.uint8("mrc.seth.mpr", "mpr", base.DEC)},
    {name = "sack_offset", offset = 144, width = 16, signed = true, proto = ProtoField.int16("mrc.seth.sack_offset", "sack_offset", base.DEC)},
    {name = "sack_bitmap", offset = 160, width = 64, proto = ProtoField.uint64("mrc.seth.sack_bitmap", "sack_bitmap", base.HEX)},
  },
}

headers.cc_state = {
  title = "Congestion Control State (CC_STATE)", size = 8,
  fields = {
    {name = "tx_timestamp", offset = 0, width = 16, proto = ProtoField.uint16("mrc.cc.tx_timestamp", "tx_timestamp", base.DEC)},
    {name = "ooo_count", offset = 17, width = 15, proto = ProtoField.uint16("mrc.cc.ooo_count", "ooo_count", base.DEC)},
    {name = "r_c", offset = 32, width = 1, proto = ProtoField.bool("mrc.cc.r_c", "r_c")},
    {name = "rcv_cwnd_pen", offset = 33, width = 7, proto = ProtoField.uint8("mrc.cc.rcv_cwnd_pen", "rcv_cwnd_pen", base.DEC)},
    {name = "rcvd_bytes", offset = 40, width = 24, proto = ProtoField.uint24("mrc.cc.rcvd_bytes", "rcvd_bytes", base.DEC)},
  },
}

headers.neth = {
  title = "NACK Extended Transport Header (NETH)", size = 20,
  fields = {
    {name = "type", offset = 0, width = 4, proto = ProtoField.uint8("mrc.neth.type", "type", base.DEC)},
    {name = "next", offset = 4, width = 5, proto = ProtoField.uint8("mrc.neth.next", "next", base.DEC)},
    {name = "nack_reason", offset = 16, width = 8, proto = ProtoField.uint8("mrc.neth.nack_reason", "nack_reason", base.DEC, {[1] = "TRIMMED", [2] = "TRIMMED_LASTHOP", [6] = "NO_BITMAP", [7] = "NO_PKT_BUFFER", [10] = "NO_RESOURCE", [11] = "PSN_OOR_WINDOW", [25] = "UNEXP_EVENT"})},
    {name = "vendor_info", offset = 24, width = 8, proto = ProtoField.uint8("mrc.neth.vendor_info", "vendor_info", base.DEC)},
    {name = "entropy", offset = 32, width = 32, proto = ProtoField.uint32("mrc.neth.entropy", "entropy", base.HEX)},
    {name = "spdcid", offset = 64, width = 16, proto = ProtoField.uint16("mrc.neth.spdcid", "spdcid", base.DEC)},
    {name = "dpdcid", offset = 80, width = 16, proto = ProtoField.uint16("mrc.neth.dpdcid", "dpdcid", base.DEC)},
    {name = "nack_psn", offset = 104, width = 24, proto = ProtoField.uint24("mrc.neth.nack_psn", "nack_psn", base.DEC)},
    {name = "cc_type", offset = 128, width = 4, proto = ProtoField.uint8("mrc.neth.cc_type", "cc_type", base.DEC)},
    {name = "cc_fl", offset = 132, width = 4, proto = ProtoField.uint8("mrc.neth.cc_fl", "cc_fl", base.DEC)},
    {name = "tx_timestamp", offset = 144, width = 16, proto = ProtoField.uint16("mrc.neth.tx_timestamp", "tx_timestamp", base.DEC)},
  },
}

headers.peth = {
  title = "Probe Extended Transport Header (PETH)", size = 16,
  fields = {
    {name = "type", offset = 0, width = 4, proto = ProtoField.uint8("mrc.peth.type", "type", base.DEC)},
    {name = "next", offset = 4, width = 5, proto = ProtoField.uint8("mrc.peth.next", "next", base.DEC)},
    {name = "vendor_info", offset = 24, width = 8, proto = ProtoField.uint8("mrc.peth.vendor_info", "vendor_info", base.DEC)},
    {name = "probe_id", offset = 32, width = 16, proto = ProtoField.uint16("mrc.peth.probe_id", "probe_id", base.DEC)},
    {name = "spdcid", offset = 64, width = 16, proto = ProtoField.uint16("mrc.peth.spdcid", "spdcid", base.DEC)},
    {name = "dpdcid", offset = 80, width = 16, proto = ProtoField.uint16("mrc.peth.dpdcid", "dpdcid", base.DEC)},
    {name = "tx_timestamp", offset = 96, width = 16, proto = ProtoField.uint16("mrc.peth.tx_timestamp", "tx_timestamp", base.DEC)},
    {name = "tsr", offset = 112, width = 1, proto = ProtoField.bool("mrc.peth.tsr", "tsr")},
    {name = "ftype", offset = 124, width = 4, proto = ProtoField.uint8("mrc.peth.ftype", "ftype", base.DEC)},
  },
}

headers.erth = {
  title = "Endpoint Request Transport Header (ERTH)", size = 16,
  fields = {
    {name = "type", offset = 0, width = 4, proto = ProtoField.uint8("mrc.erth.type", "type", base.DEC)},
    {name = "next", offset = 4, width = 5, proto = ProtoField.uint8("mrc.erth.next", "next", base.DEC)},
    {name = "op", offset = 14, width = 2, proto = ProtoField.uint8("mrc.erth.op", "op", base.DEC)},
    {name = "vendor_info", offset = 24, width = 8, proto = ProtoField.uint8("mrc.erth.vendor_info", "vendor_info", base.DEC)},
    {name = "port_status_mask", offset = 32, width = 32, proto = ProtoField.uint32("mrc.erth.port_status_mask", "port_status_mask", base.HEX)},
    {name = "tx_timestamp", offset = 96, width = 16, proto = ProtoField.uint16("mrc.erth.tx_timestamp", "tx_timestamp", base.DEC)},
    {name = "tsr", offset = 112, width = 1, proto = ProtoField.bool("mrc.erth.tsr", "tsr")},
    {name = "ftype", offset = 124, width = 4, proto = ProtoField.uint8("mrc.erth.ftype", "ftype", base.DEC)},
  },
}

headers.eeth = {
  title = "Endpoint Response Transport Header (EETH)", size = 36,
  fields = {
    {name = "type", offset = 0, width = 4, proto = ProtoField.uint8("mrc.eeth.type", "type", base.DEC)},
    {name = "next", offset = 4, width = 5, proto = ProtoField.uint8("mrc.eeth.next", "next", base.DEC)},
    {name = "op", offset = 12, width = 2, proto = ProtoField.uint8("mrc.eeth.op", "op", base.DEC)},
    {name = "tx_timestamp", offset = 224, width = 16, proto = ProtoField.uint16("mrc.eeth.tx_timestamp", "tx_timestamp", base.DEC)},
  },
}

local packets = {
  [198] = {name = "WRITE_FIRST", has_payload = true, headers.bth, headers.meth, headers.tseth, headers.reth},
  [199] = {name = "WRITE_MIDDLE", has_payload = true, headers.bth, headers.meth, headers.tseth, headers.reth},
  [200] = {name = "WRITE_LAST", has_payload = true, headers.bth, headers.meth, headers.tseth, headers.reth},
  [201] = {name = "WRITE_LAST_IMM", has_payload = true, headers.bth, headers.meth, headers.tseth, headers.reth, headers.immdt},
  [202] = {name = "WRITE_ONLY", has_payload = true, headers.bth, headers.meth, headers.tseth, headers.reth},
  [203] = {name = "WRITE_ONLY_IMM", has_payload = true, headers.bth, headers.meth, headers.tseth, headers.reth, headers.immdt},
  [209] = {name = "ACKNOWLEDGE", has_payload = false, headers.bth, headers.aeth},
  [216] = {name = "ENDPOINT_REQUEST", has_payload = false, headers.bth, headers.erth},
  [217] = {name = "ENDPOINT_RESPONSE", has_payload = false, headers.bth, headers.eeth},
  [220] = {name = "SACK", has_payload = false, headers.bth, headers.seth, headers.cc_state},
  [221] = {name = "NACK", has_payload = false, headers.bth, headers.neth},
  [222] = {name = "PROBE", has_payload = false, headers.bth, headers.peth},
}
local OPTIONAL = headers.tseth  -- only if BTH says so
local planes = {  -- carriers: blocks of planes, ranges of uSIDs
}

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

local function add_carrier(tree)
  local all = {ipv6_destination()}
  local range = #all > 0 and all[#all].range
  local plane = range and planes[range(0, 4):uint()]
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
