// A CUDA device without a GPU: its memory is the host's, and its operators are those of the CPU.
//
// A compile makes few real tensors on its device (constants, those of torch's own patterns), and
// computes little with them; what is compiled is not run.  Torch's C++ asks for more than tensors
// while it traces fake ones: autograd aborts the process where the device of a tensor has no guard,
// and waits for streams and events where it has one.  Built and loaded by libraries.py into the
// child of a replay.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <sys/mman.h>
#include <torch/library.h>

#include <new>
#include <unordered_map>
#include <vector>

namespace {

using namespace c10;

thread_local DeviceIndex current = 0;
DeviceIndex devices = 1;
long cudnn = 91000;

struct Guard final : impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(DeviceType::CUDA, current); }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  Stream getStream(Device device) const noexcept override {
    return Stream(Stream::DEFAULT, device);
  }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const noexcept override {
    return getStream(stream.device());
  }
  DeviceIndex deviceCount() const noexcept override { return devices; }
  void record(void**, const Stream&, DeviceIndex, EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, DeviceIndex) const noexcept override {}
};

struct Hooks final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return devices; }
  DeviceIndex getCurrentDevice() const override { return current; }
  DeviceIndex current_device() const override { return current; }
  // By these, a convolution is cuDNN's, which decides the strides of its result.
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return cudnn; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  long versionRuntimeCuDNN() const override { return cudnn; }
};

// The host's memory, which takes room once it is written to: a recorded tensor may be larger than
// this machine's.  Where even that is refused, a tensor has none.
struct Memory final : Allocator {
  struct Block {
    void* start;
    size_t bytes;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    munmap(block->start, block->bytes);
    delete block;
  }
  DataPtr allocate(size_t bytes) override {
    Device device(DeviceType::CUDA, current);
    if (bytes == 0) return {nullptr, device};
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) return {nullptr, device};
    return {start, new Block{start, bytes}, &release, device};
  }
  DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

Memory memory;
constexpr DispatchKeySet KEYS(DispatchKey::CUDA);

void use(std::optional<Device> device) {
  if (device && device->index() >= 0) current = device->index();
}

at::Tensor empty(
    IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout>,
    std::optional<Device> device, std::optional<bool>, std::optional<MemoryFormat> format) {
  auto before = current;
  use(device);
  auto made =
      at::detail::empty_generic(size, &memory, KEYS, at::dtype_or_default(dtype), format);
  current = before;
  return made;
}

at::Tensor empty_strided(
    IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype, std::optional<Layout>,
    std::optional<Device> device, std::optional<bool>) {
  auto before = current;
  use(device);
  auto made = at::detail::empty_strided_generic(
      size, stride, &memory, KEYS, at::dtype_or_default(dtype));
  current = before;
  return made;
}

const at::Tensor& resize_(
    const at::Tensor& self, IntArrayRef size, std::optional<MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format && *format != MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  size_t bytes = impl->storage_offset() * self.itemsize() + self.numel() * self.itemsize();
  auto storage = impl->unsafe_storage();
  if (bytes > storage.nbytes()) {
    auto larger = memory.allocate(bytes);
    if (storage.nbytes()) memory.copy_data(larger.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(bytes);
  }
  return self;
}

// A call of an operator on the device, as one of the CPU's on the same memory.
class Call {
 public:
  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) return tensor;
    for (auto& [there, here] : pairs_)
      if (there.is_same(tensor)) return here;
    auto& shared = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!shared) {
      auto storage = tensor.storage();
      shared = Storage(
          Storage::use_byte_size_t(), storage.nbytes(),
          DataPtr(storage.mutable_data(), Device(DeviceType::CPU)),
          GetAllocator(DeviceType::CPU), true);
      owners_[shared.unsafeGetStorageImpl()] = storage;
    }
    auto here = wrapped(shared, DispatchKey::CPU, tensor);
    pairs_.emplace_back(tensor, here);
    return here;
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || !tensor.is_cpu()) return tensor;
    for (auto& [there, here] : pairs_)
      if (here.is_same(tensor)) return there;
    auto& storage = tensor.storage();
    auto owner = owners_.find(storage.unsafeGetStorageImpl());
    if (owner != owners_.end()) return wrapped(owner->second, DispatchKey::CUDA, tensor);
    Storage moved(Storage::use_byte_size_t(), storage.nbytes(), moved_to(storage), &memory, true);
    return wrapped(moved, DispatchKey::CUDA, tensor);
  }

  // Gives the device's tensors the sizes, and the memory, that the operator gave the host's.
  void finish() {
    for (auto& [key, here] : storages_) {
      auto& there = owners_[here.unsafeGetStorageImpl()];
      if (here.data() == there.data()) continue;
      there.set_data_ptr_noswap(moved_to(here));
      there.set_nbytes(here.nbytes());
    }
    for (auto& [there, here] : pairs_) {
      bool same = there.sizes() == here.sizes() && there.strides() == here.strides() &&
          there.storage_offset() == here.storage_offset();
      if (!same)
        there.unsafeGetTensorImpl()->set_sizes_and_strides(
            here.sizes(), here.strides(), here.storage_offset());
    }
  }

 private:
  static DataPtr moved_to(const Storage& storage) {
    return {
        storage.mutable_data(), new Storage(storage),
        [](void* held) { delete static_cast<Storage*>(held); }, Device(DeviceType::CUDA, current)};
  }

  static at::Tensor wrapped(const Storage& storage, DispatchKey key, const at::Tensor& like) {
    auto made = at::detail::make_tensor<TensorImpl>(
        Storage(storage), DispatchKeySet(key), like.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(
        like.sizes(), like.strides(), like.storage_offset());
    if (like.is_conj()) made._set_conj(true);
    if (like.is_neg()) made._set_neg(true);
    return made;
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::unordered_map<StorageImpl*, Storage> storages_;
  std::unordered_map<StorageImpl*, Storage> owners_;
};

template <typename Function>
IValue each_tensor(const IValue& value, Function change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> made;
    for (const at::Tensor& one : value.toTensorVector()) made.push_back(change(one));
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> made;
    for (const auto& one : value.toOptionalTensorVector())
      made.push_back(one ? std::optional<at::Tensor>(change(*one)) : std::nullopt);
    return made;
  }
  return value;
}

void run_on_host(const OperatorHandle& op, torch::jit::Stack* stack) {
  Call call;
  auto before = current;
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  for (size_t n = 0; n < arguments.size(); ++n) {
    auto& value = (*stack)[first + n];
    value = each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_cuda()) use(tensor.device());
      return call.to_host(tensor);
    });
    if (value.isDevice() && value.toDevice().is_cuda()) {
      use(value.toDevice());
      value = Device(DeviceType::CPU);
    } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
      value = IValue();
    } else if (arguments[n].name() == "pin_memory") {
      value = IValue();
    }
  }
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
  call.finish();
  const auto results = op.schema().returns().size();
  for (auto n = stack->size() - results; n < stack->size(); ++n)
    (*stack)[n] = each_tensor((*stack)[n], [&](const at::Tensor& x) { return call.to_device(x); });
  current = before;
}

auto on_host() { return torch::CppFunction::makeFromBoxedFunction<&run_on_host>(); }

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(on_host()); }

struct Silent final : WarningHandler {
  void process(const Warning&) override {}
};

// A build of torch for CUDA has kernels that would take the device.
void replace_kernels(torch::Library& library) {
  Silent silent;
  WarningUtils::WarningHandlerGuard guard(&silent);
  auto& dispatcher = Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    // A composite operator would be one of the device's own.
    bool own = name.name == "aten::_fused_rms_norm" || name.name == "aten::mish_backward" ||
        name.name == "aten::silu_backward" || name.name == "aten::copy_";
    if (own || op->hasKernelForDispatchKey(DispatchKey::CUDA)) {
      auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library.impl(full.c_str(), on_host());
    }
  }
  library.impl("empty_strided", empty_strided);
  library.impl("empty.memory_format", empty);
  library.impl("resize_", resize_);
}

// Which attention was chosen on the device for a query: a rule reads the device's properties.
struct Attention {
  int64_t dimensions, sizes[3], width, type, backend;  // -1 for the size of a symbol
};
std::vector<Attention> attentions;
size_t next_attention = 0;

bool fits(int64_t recorded, const SymInt& size) {
  auto known = size.maybe_as_int();
  return recorded == -1 || !known || recorded == *known;
}

int64_t choose_attention(
    const at::Tensor& query, const at::Tensor&, const at::Tensor& value,
    const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  auto sizes = query.sym_sizes();
  auto width = value.sym_size(-1).maybe_as_int().value_or(-1);
  auto is = [&](const Attention& one) {
    bool same = one.dimensions == query.dim() && one.type == int64_t(query.scalar_type());
    // The kernels pad a width to a multiple of 8.
    same = same && (one.width == -1 || width == -1 || one.width == (width + 7) / 8 * 8);
    for (int64_t n = 0; same && n + 1 < one.dimensions; ++n) same = fits(one.sizes[n], sizes[n]);
    return same;
  };
  // In their order: another mask, of which the event log says nothing, may lead to another kernel.
  for (auto n = next_attention; n < attentions.size(); ++n)
    if (is(attentions[n])) {
      next_attention = n + 1;
      return attentions[n].backend;
    }
  for (const auto& one : attentions)
    if (is(one)) return one.backend;
  return 0;  // its definition
}

}  // namespace

extern "C" void torchreel_attention(const int64_t* rows, int count) {
  static_assert(sizeof(Attention) == 7 * sizeof(int64_t));
  auto* first = reinterpret_cast<const Attention*>(rows);
  attentions.assign(first, first + count);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
}

extern "C" void torchreel_stand_in(int count) {
  devices = static_cast<DeviceIndex>(count);
  auto& guard = impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)];
  guard.store(new Guard);
  SetAllocator(DeviceType::CUDA, &memory, 255);
  // Never deleted: its kernels are called until the process ends.
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__, __LINE__);
  replace_kernels(*library);
  // torch keeps the hooks that it found when it first asked, which is long ago: the object is
  // replaced in its place.  It has no members.
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks;
}
