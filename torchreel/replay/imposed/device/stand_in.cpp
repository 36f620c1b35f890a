// What torch's C++ asks of CUDA while it traces fake tensors, answered without a GPU.
//
// Autograd aborts the process where the device of a tensor has no guard, and waits for streams and
// events where it has one: here nothing runs, so that there is nothing to wait for.  Built and
// loaded by libraries.py into the child of a replay, which computes nothing on the device.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <torch/library.h>

#include <new>

namespace {

using namespace c10;

thread_local DeviceIndex current = 0;
DeviceIndex devices = 1;

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
};

// A tensor that says where it is, and has no memory there: enough to be traced.
at::Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  auto type = c10::scalarTypeToTypeMeta(dtype.value_or(at::get_default_dtype_as_scalartype()));
  auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  auto bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  auto index = device && device->index() >= 0 ? device->index() : current;
  DataPtr nothing(nullptr, Device(DeviceType::CUDA, index));
  Storage storage(Storage::use_byte_size_t(), bytes, std::move(nothing), nullptr, false);
  auto made = at::detail::make_tensor<TensorImpl>(
      std::move(storage), DispatchKeySet(DispatchKey::CUDA), type);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

at::Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat>) {
  std::vector<c10::SymInt> stride(size.size(), 1);
  for (size_t n = size.size(); n > 1; --n) stride[n - 2] = stride[n - 1] * size[n - 1].max(1);
  return empty_strided(size, stride, dtype, layout, device, pin);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty_strided", empty_strided);
  library.impl("empty.memory_format", empty);
}

}  // namespace

extern "C" void torchreel_stand_in(int count) {
  devices = static_cast<DeviceIndex>(count);
  auto& guard = impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)];
  guard.store(new Guard);
  // torch keeps the hooks that it found when it first asked, which is long ago: the object is
  // replaced in its place.  It has no members.
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks;
}
