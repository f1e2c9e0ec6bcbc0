// Where the handles that programs hold lead: a table for each kind of object, for the life of the process.
//
// A forked child has none of its parent's objects: their handles are unknown there.
#pragma once

#include "via/vipl/handles.hpp"

namespace viaduct::vipl {

class Nic;
class Vi;
class Cq;
struct Ptag;
struct Request;

using Nics = HandleTable<Nic, HandleKind::nic>;
using Vis = HandleTable<Vi, HandleKind::vi>;
using Cqs = HandleTable<Cq, HandleKind::cq>;
using Ptags = HandleTable<Ptag, HandleKind::ptag>;
using Requests = HandleTable<Request, HandleKind::connection>;

extern constinit Everlasting<Nics> nic_table;
extern constinit Everlasting<Vis> vi_table;
extern constinit Everlasting<Cqs> cq_table;
extern constinit Everlasting<Ptags> ptag_table;
extern constinit Everlasting<Requests> request_table;

inline Nics& nics() {
  return nic_table.table;
}
inline Vis& vis() {
  return vi_table.table;
}
inline Cqs& cqs() {
  return cq_table.table;
}
inline Ptags& ptags() {
  return ptag_table.table;
}
inline Requests& requests() {
  return request_table.table;
}

void hook_fork();  // before the first handle is given out

}  // namespace viaduct::vipl
