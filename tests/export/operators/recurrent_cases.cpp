// Recurrent layers.
#include <torch/nn/modules/rnn.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;

}  // namespace

void add_recurrent_cases(CaseList& cases) {
  cases.add_net("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)), floats({5, 3}));
  cases.add_net("lstm",
                nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)),
                floats({5, 3}));
  cases
      .add_net("lstm", nn::LSTM(nn::LSTMOptions(3, 4).bias(false)),
               [](std::int64_t batch) { return torch::randn({5, batch, 3}); })
      .options.batch_dimensions = {1};
  cases.add_net("gru", nn::GRU(nn::GRUOptions(3, 4).num_layers(2).batch_first(true)),
                floats({5, 3}));
  cases.add_net("gru", nn::GRU(nn::GRUOptions(3, 4).bidirectional(true).batch_first(true)),
                floats({5, 3}));
  cases.add_net("rnn_tanh", nn::RNN(nn::RNNOptions(3, 4).batch_first(true)), floats({5, 3}));
  cases.add_net(
      "rnn_relu",
      nn::RNN(
          nn::RNNOptions(3, 4).nonlinearity(torch::kReLU).bidirectional(true).batch_first(true)),
      floats({5, 3}));
}

}  // namespace lockstep::testing_support
