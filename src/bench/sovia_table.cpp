#include "bench/sovia_table.hpp"

#include "base/topology.hpp"

namespace viaduct::bench {

namespace {

using Point = SoviaPaper::Point;

// Tables 2 (M-VIA) and 3 (cLAN).
constexpr Point kNative[] = {{4, 8.3, 43.3},         {8, 8.3, 43.4},        {16, 8.4, 43.4},     {32, 10.1, 44.2},
                             {64, 10.1, 49.1},       {128, 10.5, 60.3},     {256, 11.9, 81.5},   {512, 14.9, 123.1},
                             {1024, 20.2, 206.3},    {2048, 30.4, 330.3},   {4096, 50.5, 506.8}, {8192, 90.6, 859.0},
                             {16384, 169.9, 1545.3}, {32768, 329.0, 2910.2}};
constexpr Point kReg[] = {{4, 12.3, 57.6},        {8, 12.6, 57.9},       {16, 12.6, 58.0},    {32, 14.3, 58.8},
                          {64, 14.5, 63.9},       {128, 15.5, 75.5},     {256, 17.3, 97.5},   {512, 20.5, 140.7},
                          {1024, 26.4, 227.9},    {2048, 39.5, 354.5},   {4096, 65.3, 539.3}, {8192, 123.4, 912.7},
                          {16384, 240.7, 1632.5}, {32768, 461.1, 3053.7}};
constexpr Point kCopy[] = {{4, 10.5, 45.1},        {8, 10.6, 45.4},       {16, 10.8, 45.4},    {32, 12.5, 46.0},
                           {64, 12.8, 51.2},       {128, 14.0, 62.9},     {256, 16.0, 84.7},   {512, 19.7, 127.7},
                           {1024, 26.5, 213.5},    {2048, 40.7, 339.3},   {4096, 74.2, 526.3}, {8192, 160.1, 915.0},
                           {16384, 307.7, 1660.7}, {32768, 603.2, 3135.6}};
constexpr Point kHybrid[] = {{4, 10.5, 45.0},        {8, 10.7, 45.4},       {16, 10.8, 45.4},    {32, 12.5, 45.9},
                             {64, 12.8, 51.2},       {128, 14.0, 62.9},     {256, 16.0, 84.7},   {512, 19.7, 127.8},
                             {1024, 26.5, 213.9},    {2048, 40.8, 339.6},   {4096, 65.0, 539.4}, {8192, 123.0, 912.4},
                             {16384, 240.3, 1632.2}, {32768, 460.6, 3053.4}};
// Section 4.1 and figure 5, section 4.3 and figure 9; peak bandwidths of section 4.2.
constexpr Point kNotify[] = {{4, 0, 88.5}};
constexpr Point kHandler[] = {{4, 29.9, 83.3}};
constexpr Point kHandlerSmp[] = {{4, 38.2, 110.0}};
constexpr Point kBlocking[] = {{4, 19.4, 0}};
constexpr Point kTcp[] = {{4, 54.9, 75.6}};

constexpr SoviaPaper kPaperNative{kNative, {32768, 815, 0}};
constexpr SoviaPaper kPaperTcp{kTcp, {32768, 450, 0}};

}  // namespace

std::vector<SoviaConfiguration> sovia_table(std::size_t copy_limit) {
  using Data = SoviaOptions::Data;
  using Handling = SoviaOptions::Handling;
  constexpr auto kThreeWay = SoviaOptions::Synchronisation::three_way;
  constexpr auto kBlockingCalls = SoviaOptions::Waiting::blocking;
  SoviaOptions hybrid{.data = Data::hybrid, .copy_limit = copy_limit};
  SoviaOptions flow = hybrid, dacks = hybrid, combine = hybrid, blocking = hybrid, three_way = hybrid;
  flow.window = dacks.window = combine.window = blocking.window = 32;
  dacks.threshold = combine.threshold = blocking.threshold = 16;
  combine.combine = blocking.combine = true;
  blocking.waiting = kBlockingCalls;
  three_way.synchronisation = kThreeWay;
  std::vector<SoviaConfiguration> table = {
      {kSoviaNotify, "notify functions, R, w=1 t=1", {.handling = Handling::notify}, {kNotify, {}}},
      {kSoviaHandler, "handler thread, R, w=1 t=1", {.handling = Handling::handler}, {kHandler, {}}},
      {kSoviaSingle, "application thread, R, w=1 t=1", {}, {kReg, {}}},
      {kSoviaCopy, "application thread, B, w=1 t=1", {.data = Data::buffered}, {kCopy, {}}},
      {kSoviaHybrid, "application thread, H, w=1 t=1", hybrid, {kHybrid, {}}},
      {kSoviaBase, "the same as SOVIA_HYBRID: the two differ by what is noise here", hybrid, {kHybrid, {}}},
      {kSoviaFlowControl, "application thread, H, w=32 t=1", flow, {}},
      {kSoviaDacks, "application thread, H, w=32 t=16", dacks, {{}, {32768, 814, 96}}},
      {kSoviaCombine, "application thread, H, w=32 t=16, combining", combine, {{}, {32768, 814, 96}}},
      {kSoviaKept, "application thread, R, registrations kept, w=1 t=1", {.keep_registrations = true}, {}},
      {kSoviaBlocking, "the same as SOVIA_COMBINE, with blocking calls", blocking, {kBlocking, {32768, 780, 0}}},
      {kSoviaThreeWay, "REQ, ACK, DATA; application thread, H", three_way, {}}};
  constexpr std::size_t kTwoEach = 4;
  if (Topology::machine().processors().size() >= kTwoEach)
    table.push_back({kSoviaApart,
                     "SOVIA_HANDLER, each handler thread on a processor of its own",
                     {.handling = Handling::handler, .handler_apart = true},
                     {kHandlerSmp, {}}});
  return table;
}

const SoviaPaper& paper_native_via() {
  return kPaperNative;
}

const SoviaPaper& paper_tcp() {
  return kPaperTcp;
}

}  // namespace viaduct::bench
