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
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return devices; }
  DeviceIndex getCurrentDevice() const override { return current; }
  DeviceIndex current_device() const override { return current; }
  bool isPinnedPtr(const void*) const override { return false; }
  Allocator* getPinnedMemoryAllocator() const override { return GetAllocator(DeviceType::CPU); }
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

// Makes a device the current one for a while, also where an exception ends it.
class Current {
 public:
  Current() : before_(current) {}
  ~Current() { current = before_; }
  void use(std::optional<Device> device) {
    if (!device || device->index() < 0) return;
    TORCH_CHECK(device->index() < devices, "CUDA error: invalid device ordinal");
    current = device->index();
  }

 private:
  DeviceIndex before_;
};

at::Tensor empty(
    IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout>,
    std::optional<Device> device, std::optional<bool>, std::optional<MemoryFormat> format) {
  Current on;
  on.use(device);
  return at::detail::empty_generic(size, &memory, KEYS, at::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype, std::optional<Layout>,
    std::optional<Device> device, std::optional<bool>) {
  Current on;
  on.use(device);
  return at::detail::empty_strided_generic(
      size, stride, &memory, KEYS, at::dtype_or_default(dtype));
}

const at::Tensor& resize_(
    const at::Tensor& self, IntArrayRef size, std::optional<MemoryFormat> format) {
  if (self.sizes() == size && !format) return self;
  Current on;
  on.use(self.device());
  auto* impl = self.unsafeGetTensorImpl();
  // Raises for sizes that are none, before anything has changed.
  size_t bytes = at::detail::computeStorageNbytesContiguous(
      size, self.itemsize(), size_t(impl->storage_offset()));
  auto storage = impl->unsafe_storage();
  if (bytes > storage.nbytes()) {
    auto larger = memory.allocate(bytes);
    if (larger.get() && storage.data())
      memory.copy_data(larger.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  if (format && *format != MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

// A call of an operator on the device, as one of the CPU's on the same memory.
class Call {
 public:
  explicit Call(bool is_view) : is_view_(is_view) {}

  Storage to_host(const Storage& storage) {
    auto& shared = storages_[storage.unsafeGetStorageImpl()];
    if (!shared) {
      DataPtr data(
          storage.mutable_data(), new Storage(storage),
          [](void* held) { delete static_cast<Storage*>(held); }, Device(DeviceType::CPU));
      shared = Storage(
          Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
          GetAllocator(DeviceType::CPU), true);
      owners_[shared.unsafeGetStorageImpl()] = storage;
    }
    return shared;
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) return tensor;
    for (auto& pair : pairs_)
      if (pair.there.is_same(tensor)) return pair.here;
    auto& storage = tensor.storage();
    bool lacks = storage.nbytes() > 0 && !storage.data() && !tensor._is_zerotensor();
    TORCH_CHECK_WITH(
        OutOfMemoryError, is_view_ || !lacks, "This machine had not the ", storage.nbytes(),
        " bytes of a tensor of the recorded GPU.");
    auto shared = to_host(storage);
    auto here = wrapped(shared, tensor, BackendComponent::CUDABit, BackendComponent::CPUBit);
    pairs_.push_back({tensor, here, shared.unsafeGetStorageImpl()});
    return here;
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || !tensor.is_cpu()) return tensor;
    for (auto& pair : pairs_)
      if (pair.here.is_same(tensor)) return pair.there;
    return wrapped(
        owner(tensor.storage()), tensor, BackendComponent::CPUBit, BackendComponent::CUDABit);
  }

  // Gives the device's tensors the sizes, and the memory, that the operator gave the host's.
  void finish() {
    for (auto& [key, here] : storages_) {
      auto& there = owners_[here.unsafeGetStorageImpl()];
      if (here.data() == there.data()) continue;
      there.set_data_ptr_noswap(moved(here));
      there.set_nbytes(here.nbytes());
    }
    for (auto& [there, here, given] : pairs_) {
      auto* impl = there.unsafeGetTensorImpl();
      if (here.storage().unsafeGetStorageImpl() != given)
        impl->set_storage_keep_dtype(owner(here.storage()));
      bool same = there.sizes() == here.sizes() && there.strides() == here.strides() &&
          there.storage_offset() == here.storage_offset();
      if (!same)
        impl->set_sizes_and_strides(here.sizes(), here.strides(), here.storage_offset());
    }
  }

 private:
  struct Pair {
    at::Tensor there, here;
    StorageImpl* given;
  };

  // The device's storage of the same memory.
  Storage owner(const Storage& storage) {
    auto found = owners_.find(storage.unsafeGetStorageImpl());
    if (found != owners_.end()) return found->second;
    Storage made(Storage::use_byte_size_t(), storage.nbytes(), moved(storage), &memory, true);
    owners_[storage.unsafeGetStorageImpl()] = made;
    kept_.push_back(storage);
    return made;
  }

  static DataPtr moved(const Storage& storage) {
    return {
        storage.mutable_data(), new Storage(storage),
        [](void* held) { delete static_cast<Storage*>(held); }, Device(DeviceType::CUDA, current)};
  }

  static at::Tensor wrapped(
      const Storage& storage, const at::Tensor& like, BackendComponent from, BackendComponent to) {
    // With the keys of `like`: what it is to autograd, conjugated, negated, a tensor of zeros.
    auto keys = like.key_set().remove_backend(from) | DispatchKeySet(to);
    auto made = at::detail::make_tensor<TensorImpl>(
        TensorImpl::VIEW, Storage(storage), keys, like.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(
        like.sizes(), like.strides(), like.storage_offset());
    return made;
  }

  bool is_view_;
  std::vector<Pair> pairs_;
  std::vector<Storage> kept_;
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

bool returns_view(const FunctionSchema& schema) {
  return !schema.returns().empty() && schema.returns()[0].alias_info() &&
      !schema.returns()[0].alias_info()->isWrite();
}

void run_on_host(const OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  Call call(returns_view(schema));
  Current on;
  const auto& arguments = schema.arguments();
  const auto first = stack->size() - arguments.size();
  for (size_t n = 0; n < arguments.size(); ++n) {
    auto& value = (*stack)[first + n];
    value = each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_cuda()) on.use(tensor.device());
      return call.to_host(tensor);
    });
    if (value.isStorage() && value.toStorage().device().is_cuda()) {
      value = call.to_host(value.toStorage());
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      on.use(value.toDevice());
      value = Device(DeviceType::CPU);
    } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
      value = IValue();
    } else if (arguments[n].name() == "pin_memory") {
      value = IValue();
    }
  }
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
  call.finish();
  const auto results = schema.returns().size();
  for (auto n = stack->size() - results; n < stack->size(); ++n)
    (*stack)[n] = each_tensor((*stack)[n], [&](const at::Tensor& x) { return call.to_device(x); });
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
