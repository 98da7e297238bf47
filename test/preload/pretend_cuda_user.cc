// Puts what is in every NCCL into a program, as linking libnccl_static.a does, and the driver in
// its needs.
extern "C" int pretend_cuda();
namespace {
struct Use {
  Use() { pretend_cuda(); }
} use;
}  // namespace
extern const char kNcclSetting[];
const char kNcclSetting[] = "NCCL_P2P_DISABLE";
const char* volatile nccl_setting = kNcclSetting;
