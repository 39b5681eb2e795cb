// Modes of LibTorch that hold for the whole process.
#pragma once

namespace lockstep {

/// For as long as it lives: with `deterministic`, operations without a deterministic implementation
/// throw, and cuDNN does not choose algorithms by their speed (torch.use_deterministic_algorithms);
/// with `detect_anomaly`, a backward that makes a value that is not a number throws and names the
/// operation (torch.autograd.set_detect_anomaly). Afterwards the modes are as they were. With
/// neither it changes nothing. All threads of the process are affected.
class GlobalModes {
 public:
  GlobalModes(bool deterministic, bool detect_anomaly);
  ~GlobalModes();
  GlobalModes(const GlobalModes&) = delete;
  GlobalModes& operator=(const GlobalModes&) = delete;

 private:
  const bool deterministic_;
  const bool detect_anomaly_;
  bool former_algorithms_ = false;
  bool former_warn_only_ = false;
  bool former_cudnn_ = false;
  bool former_benchmark_ = false;
  bool former_anomaly_ = false;
  bool former_check_nan_ = false;
};

}  // namespace lockstep
